# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# From init to gc, branches, merge, rebase, stash, a clone over the file system.
set -eu
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_DATE="2001-02-03T04:05:06Z" GIT_COMMITTER_DATE="2001-02-03T04:05:06Z"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b main r; cd r
for i in $(seq 40); do mkdir -p "d$((i % 5))"; seq "$i" > "d$((i % 5))/f$i"; done
git add -A; git commit -qm first; git rev-parse HEAD
git checkout -qb side; sed -i 1s/.*/changed/ d1/f1 d2/f2; git commit -qam side; git checkout -q main; echo new > new; git add new; git commit -qm new
git merge -q --no-edit side; git rev-parse HEAD; git log --oneline --graph | cat
echo stash >> new; git stash -q; git status --short; git stash pop -q; git diff --stat | cat; git checkout -q new
git tag v1; git gc -q; git fsck 2>&1; git count-objects -v | grep -E "count|in-pack"
cd ..; git clone -q r copy; cd copy; git rev-parse HEAD; git log --format=%s; git grep -c 7 | sort | head -n 5; git archive HEAD | sha256sum; git describe --tags
git checkout -q -b r HEAD~1; echo x > x; git add x; git commit -qm x; git rebase -q main; git log --format=%s -3; git blame -s d1/f1 | cat
