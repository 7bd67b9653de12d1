#!/bin/sh
# Makes the user and tells systemd of the units. Nothing is started: timers are enabled by whoever has configured them.
# DPKG_ROOT is set where dpkg installs into a folder (dpkg --root=…, an image): then the running system is left alone.
set -e
if command -v systemd-sysusers >/dev/null 2>&1; then systemd-sysusers --root="${DPKG_ROOT:-/}" || true; fi
if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi
