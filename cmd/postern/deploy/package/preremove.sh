#!/bin/sh
# deb: remove, or upgrade; rpm: how many versions are left. An upgrade leaves it running.
set -e
case "$1" in
remove | 0) ;;
*) exit 0 ;;
esac
[ -d /run/systemd/system ] || exit 0
systemctl disable --now postern.service
