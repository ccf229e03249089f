# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# tar, zstd, rsync and openssl over 10,000 files.
set -eu
python3 - <<'END'
import os
for d in range(100):
    os.makedirs(f"t/{d // 10}/{d}")
    for f in range(100):
        with open(f"t/{d // 10}/{d}/{f}", "w") as out:
            out.write(f"{d} {f}\n" * (f % 5))
END
find t -type f | wc -l; tar --sort=name --owner=0 --group=0 --mtime=@0 -cf t.tar t; sha256sum t.tar; zstd -q -T2 t.tar -o t.zst; zstd -q -dc t.zst | cmp - t.tar && echo packed
mkdir x; tar xf t.tar -C x; diff -r t x/t && echo same; rsync -a --checksum t/ mirror/; rsync -ain t/ mirror/ | wc -l; rm -r t/3; rsync -a --delete t/ mirror/; find mirror -type f | wc -l
openssl dgst -sha256 t.tar | sed "s/.*= //"; openssl rand 16 | wc -c; openssl enc -aes-256-cbc -pbkdf2 -k x -S 0001020304050607 -in t.tar | openssl enc -d -aes-256-cbc -pbkdf2 -k x -S 0001020304050607 | cmp - t.tar && echo enciphered
openssl speed -seconds 1 -bytes 1024 sha256 > /dev/null 2>&1 && echo speed; rm -r x mirror t; ls
