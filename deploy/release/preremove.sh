#!/bin/sh
# Before the package goes, its units end: a timer that stays active would start a program that is not there. An upgrade (dpkg says
# "upgrade", rpm says 1) leaves them as they are. The agent is a package of its own. DPKG_ROOT: see postinstall.sh.
set -e
case "${1:-}" in remove | 0) ;; *) exit 0 ;; esac
if [ -n "${DPKG_ROOT:-}" ] || ! command -v systemctl >/dev/null 2>&1; then exit 0; fi
units=$(systemctl list-unit-files --no-legend 'ratebatch-*.timer' 'ratebatch-*.service' | cut -d' ' -f1 | grep -v '^ratebatch-agent\.' || true)
if [ -n "$units" ]; then systemctl disable --now $units || true; fi
