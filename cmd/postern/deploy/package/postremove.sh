#!/bin/sh
# State and configuration stay, until a deb is purged: the key is in there.
set -e
[ "$1" != purge ] || rm -rf /var/lib/postern
[ ! -d /run/systemd/system ] || systemctl daemon-reload
