#!/bin/sh
# deb: configure [OLD VERSION]; rpm: how many versions there are now.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers /usr/lib/sysusers.d/postern.conf
elif ! getent passwd postern >/dev/null; then
	useradd --system --user-group --no-create-home --home-dir /var/lib/postern --shell /usr/sbin/nologin postern
fi
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl try-restart postern.service # an upgrade
