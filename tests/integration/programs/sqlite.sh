# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# sqlite3: WAL, and writers that meet.
set -eu
python3 - <<'END'
import os, sqlite3
db = sqlite3.connect("a.db"); print(db.execute("pragma journal_mode=wal").fetchone()); db.execute("create table t (p int, n int)"); db.commit(); db.close()
for p in range(4):
    if os.fork() == 0:
        db = sqlite3.connect("a.db", timeout=60, isolation_level=None)
        for n in range(25):
            db.execute("begin immediate"); db.execute("insert into t values (?, ?)", (p, n)); db.execute("commit")
        db.close(); os._exit(0)
print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(4)))
db = sqlite3.connect("a.db"); print(db.execute("select p, count(*), sum(n) from t group by p order by p").fetchall(), db.execute("pragma integrity_check").fetchall())
db.execute("pragma wal_checkpoint(truncate)"); db.execute("vacuum"); print(os.path.exists("a.db-wal"), os.path.getsize("a.db") % 4096)
db.close(); db = sqlite3.connect("a.db"); db.execute("pragma mmap_size=1000000"); print(db.execute("select max(n) from t").fetchone())
END
