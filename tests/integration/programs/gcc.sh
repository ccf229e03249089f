# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# gcc and g++ build and run a project of several files with make -j2.
set -eu
cat > Makefile <<'END'
OBJECTS := $(patsubst %.c,%.o,$(wildcard *.c))
all: program plus libs.so
program: $(OBJECTS)
	gcc -o $@ $^ -lpthread -lm
%.o: %.c all.h
	gcc -O2 -g -Wall -c -o $@ $<
plus: plus.cc
	g++ -O1 -std=c++17 -o $@ $<
libs.so: s/shared.c
	gcc -shared -fPIC -o $@ $<
END
mkdir s; echo 'int shared(int x) { return x + 1; }' > s/shared.c
for i in $(seq 12); do echo "int f$i(int);"; done > all.h
for i in $(seq 12); do printf '#include <stdio.h>\n#include <string.h>\n#include <math.h>\n#include "all.h"\nint f%d(int x) { char b[32]; snprintf(b, sizeof b, "%%d", x); return (int)strlen(b) + (int)sqrt(x) + %d; }\n' "$i" "$i" > "f$i.c"; done
{ echo '#include <stdio.h>'; echo '#include <pthread.h>'; echo '#include <dlfcn.h>'; echo '#include "all.h"'
  echo 'static void *t(void *p) { *(int *)p = f3(*(int *)p); return 0; }'
  echo 'int main(void) { int s = 0, v = 99; pthread_t id;'
  for i in $(seq 12); do echo "s += f$i($i * 1000);"; done
  echo 'pthread_create(&id, 0, t, &v); pthread_join(id, 0); void *h = dlopen("./libs.so", RTLD_NOW); int (*g)(int) = dlsym(h, "shared"); printf("%d %d %d", s, v, g(41)); puts(""); return 0; }'
} > main.c
cat > plus.cc <<'END'
#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>
int main() {
    std::map<std::string, std::vector<int>> m;
    for (int i = 0; i < 100; i++) m[std::to_string(i % 7)].push_back(i);
    for (auto &[k, v] : m) std::cout << k << ":" << v.size() << " ";
    try { throw std::runtime_error("thrown"); } catch (const std::exception &e) { std::cout << e.what() << "\n"; }
    long s = 0; std::thread t([&] { for (int i = 0; i < 1000; i++) s += i; }); t.join();
    std::cout << s << std::regex_match("abc123", std::regex("[a-z]+[0-9]+")) << "\n";
}
END
make -j2 > log 2>&1 || { cat log; exit 1; }
sort log; ./program; ./plus; objdump -d program | grep -c ret > /dev/null && echo disassembled; make -q && echo "nothing to do"
echo 'int main( { }' > bad.cc; gcc -c bad.cc > err 2>&1 || { echo "status $?"; wc -l < err; }
echo 'int main(void) { return *(volatile int *)0; }' > seg.c; gcc -O0 -w seg.c -o seg; ./seg 2>/dev/null || echo "segfault $?"
