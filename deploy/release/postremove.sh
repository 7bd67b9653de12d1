#!/bin/sh
# Tells systemd that the units are gone. DPKG_ROOT: see postinstall.sh.
set -e
if [ -z "${DPKG_ROOT:-}" ] && command -v systemctl >/dev/null 2>&1; then systemctl daemon-reload || true; fi
