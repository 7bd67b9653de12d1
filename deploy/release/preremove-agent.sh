#!/bin/sh
# As preremove.sh, for the agent's package.
set -e
case "${1:-}" in remove | 0) ;; *) exit 0 ;; esac
if [ -n "${DPKG_ROOT:-}" ] || ! command -v systemctl >/dev/null 2>&1; then exit 0; fi
systemctl disable --now ratebatch-agent.service || true
