# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# Applets, pipes, traps, here documents.
busybox sh -c '
set -eu
b=busybox
$b mkdir -p a/b/c; $b touch a/b/one a/b/c/two
i=0; while [ $i -lt 50 ]; do echo "line $i of a file" >> text; i=$((i + 1)); done
$b wc text; $b head -n 3 text | $b tail -n 1; $b grep -c 7 text; $b sed -n "s/line \([0-9]*\) .*/\1/p" text | $b sort -rn | $b head -n 4
$b awk "{ s += \$2 } END { print s }" text
$b cut -d" " -f2 text | $b tr 0-9 a-j | $b uniq | $b tail -n 2
$b find a | $b sort; $b cp -r a copy; $b diff -r a copy && echo same
$b tar cf a.tar a text; $b tar tf a.tar | $b sort; $b gzip -c text | $b gunzip | $b cmp - text && echo packed
$b md5sum text; $b sha256sum < text; $b od -An -tx1 -N8 text; $b expr 6 \* 7; $b basename /x/y.c .c; $b dirname /x/y
$b ln -s text link; $b readlink link; $b stat -c "%s %a %F" text; $b chmod 640 text; $b stat -c %a text
$b mv copy moved; $b rm -r moved; $b ls; $b du -s a > /dev/null; $b test -d a && echo directory
trap "echo trapped" USR1; kill -USR1 $$; (exit 3) || echo "status $?"; $b seq 3 | $b xargs -n1 echo got
$b cat <<END
a document, here
END
{ echo to stderr >&2; } 2>&1
$b sleep 0; $b true && ! $b false && echo logic; $b env -i A=1 $b env; $b id -u > /dev/null; $b printf "%05d %s\n" 42 done
'
