read -r end
if pid=$(pgrep -o -f "postgres -D $0/"); then
	kill -STOP "$pid"
	kill -KILL $(pgrep -P "$pid") "$pid"
fi
segment=$(sed -n '7s/.* //p' "$0/data/postmaster.pid") && ipcrm -m "$segment"
for again in 1 2 3 4 5 6 7 8 9 10; do
	[ ! -d "$0/disk" ] || umount "$0/disk"
	rm -rf "$0" && break
	sleep 0.1
done
