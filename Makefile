# SPDX-License-Identifier: Apache-2.0
# The few commands a person types. Everything real is in meson.build and tools/.

BUILD := build

.PHONY: all deps build run test test-lab test-lab-machines check bench format clean
all: build

deps:
	@tools/install-deps

# A warning is an error here: the reference compiler is Debian 12's.
$(BUILD)/build.ninja: | deps
	meson setup $(BUILD) -Dwerror=true

build: deps $(BUILD)/build.ninja
	@ninja -C $(BUILD)

# The main job: an untrusted program in a cell, first with no network, then with one server allowed.
run: build
	@examples/demo/run

test: deps
	@tools/run-tests

check: deps
	@tools/run-tests --quick

# The whole integration suite in the lab machine (cgroup v2) alone.
test-lab: deps
	@tools/run-tests --only build,lab-all

# The suites of a cell's life, limits, egress, crashes and copies on machines that KVM runs, all of them: over an hour.
test-lab-machines: deps
	@tools/run-tests --only build,machines-lab-all

bench: build
	@tools/install-deps bench
	@meson test -C $(BUILD) --benchmark --verbose

format: deps
	@git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-fuzz $(BUILD)-analyze $(BUILD)-mutants
