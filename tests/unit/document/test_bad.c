/* SPDX-License-Identifier: Apache-2.0 */
/* SPDX-FileCopyrightText: The cella authors */

/*
 * Documents that are refused, and every word of the complaint: the place, the pointer, what is
 * wrong, what to do. In the texts ' stands for ".
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#undef fail
#include "document.h"
#undef fail /* both call it so */
#define fail() _fail(__FILE__, __LINE__)

static const struct row {
    const char *text, *says;
} rows[] = {
    {"{", "p:1:2: not valid JSON: string or '}' expected near end of file"},
    {"[1]", "p:1:1: expected the policy document, an object"},
    {"7", "p:1:1: not valid JSON: '[' or '{' expected near '7'"},
    {"{'version':1,'version':1}",
     "p:1:14: not valid JSON: duplicate object key near '\"version\"'"},
    {"{'allow':[]}", "p:1:1: the document has no \"version\"; add \"version\": 1"},
    {"{'version':2}", "p:1:12: /version: expected 1, the only version known here"},
    {"{'version':'1'}", "p:1:12: /version: expected 1, the only version known here"},
    {"{'version':1,'default':'allow'}",
     "p:1:24: /default: expected \"deny\"; there is no other default"},
    {"{'version':1,'alow':[]}",
     "p:1:14: /alow: the policy document has no member of this name; remove it"},
    {"{'version':1,'':[]}",
     "p:1:1: the policy document has no member with an empty name; remove it"},
    {"{'version':1,'allow':{}}", "p:1:22: /allow: expected a list of rules"},
    {"{'version':1,'allow':[7]}", "p:1:23: /allow/0: expected a rule, an object"},
    {"{'version':1,'revision':-1}",
     "p:1:25: /revision: expected a whole number from 0 to 9007199254740992"},
    {"{'version':1,'revision':'3'}",
     "p:1:25: /revision: expected a whole number from 0 to 9007199254740992"},
    {"{'version':1,'reopen':1}", "p:1:23: /reopen: expected true or false"},
    {"{'version':1,'on_tighten':'keep'}",
     "p:1:27: /on_tighten: expected \"kill\"; flows that are no longer allowed never stay "
     "open"},
    {"{'version':1,'phases':{}}", "p:1:23: /phases: expected an object of at least one phase"},
    {"{'version':1,'phases':[]}", "p:1:23: /phases: expected an object of at least one phase"},
    {"{'version':1,'phases':{'a':{},'b':{}}}",
     "p:1:23: /phases: \"active\" must name the phase to begin with"},
    {"{'version':1,'active':'c','phases':{'a':{},'b':{}}}",
     "p:1:23: /active: expected the name of one of the phases of this document"},
    {"{'version':1,'active':'a','allow':[]}",
     "p:1:23: /active: expected the name of one of the phases of this document"},
    {"{'version':1,'phases':{'a':{}},'allow':[]}",
     "p:1:23: /phases: \"allow\" and \"deny\" belong into the phases when there are phases"},
    {"{'version':1,'phases':{'a':{'alow':[]}}}",
     "p:1:29: /phases/a/alow: a phase has no member of this name; remove it"},
    {"{'version':1,'phases':{'a/b':{}}}",
     "p:1:30: /phases/a~1b: a phase name is 1 to 63 letters, digits, '.', '_' and '-'"},
    {"{'version':1,'phases':{'a':[]}}",
     "p:1:28: /phases/a: expected an object with \"allow\" and \"deny\""},
    {"{'version':1,'phases':{'a':{'allow':[{'id':'r','host':'Example.com','ports':[1]}]}}}",
     "p:1:55: /phases/a/allow/0/host: has upper-case letters; names are compared in lower "
     "case, so write them so"},
    {"{'version':1,'allow':[{'host':'example.com','ports':[1]}]}",
     "p:1:23: /allow/0: the rule has no \"id\"; events and reports name rules by it, add o"
     "ne"},
    {"{'version':1,'allow':[{'id':'a b','host':'example.com','ports':[1]}]}",
     "p:1:29: /allow/0/id: a rule id is a string of 1 to 63 letters, digits, '.', '_' and "
     "'-', starting with a letter or digit"},
    {"{'version':1,'allow':[{'id':'r','host':'a.example.com','ports':[1]},{'id':'r','host'"
     ":'b.example.com','ports':[1]}]}",
     "p:1:75: /allow/1/id: the id \"r\" is used twice in this phase; ids must be unique"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'any':true}]}",
     "p:1:72: /allow/0/any: a rule has no member of this name; remove it"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'tls':'splice"
     "'}]}",
     "p:1:72: /allow/0/tls: a rule has no member of this name; remove it"},
    {"{'version':1,'allow':[{'id':'r','ports':[1]}]}",
     "p:1:23: /allow/0: the rule names nothing; add \"host\", such as \"api.example.com\","
     " or \"cidr\", such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'example.com','cidr':'203.0.113.0/24','ports'"
     ":[1]}]}",
     "p:1:54: /allow/0/cidr: a rule has \"host\" or \"cidr\", never both; write two rules"},
    {"{'version':1,'allow':[{'id':'r','host':'example.com'}]}",
     "p:1:23: /allow/0: the rule needs \"ports\", a list such as [443, \"8000-8010\"]; the"
     "re is no \"all ports\" default"},
    {"{'version':1,'allow':[{'id':'r','host':'example.com','ports':443}]}",
     "p:1:62: /allow/0/ports: the rule needs \"ports\", a list such as [443, \"8000-8010\""
     "]; there is no \"all ports\" default"},
    {"{'version':1,'allow':[{'id':'r','host':'example.com','ports':[0]}]}",
     "p:1:63: /allow/0/ports/0: expected a port 1-65535 or a range such as \"8000-8010\""},
    {"{'version':1,'allow':[{'id':'r','host':'example.com','ports':[443,'90-80']}]}",
     "p:1:67: /allow/0/ports/1: expected a port 1-65535 or a range such as \"8000-8010\""},
    {"{'version':1,'allow':[{'id':'r','host':'example.com','ports':['20-30']}]}",
     "p:1:63: /allow/0/ports/0: contains TCP port 25 (mail), which no document can open; l"
     "eave it out (\"1-24\", \"26-65535\")"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'proto':'icmp"
     "'}]}",
     "p:1:80: /allow/0/proto: expected \"tcp\" or \"udp\"; no other protocol can be opened"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'proto':'udp'"
     "}]}",
     "p:1:23: /allow/0: UDP is not looked into; a rule with \"proto\": \"udp\" needs \"lay"
     "er\": \"raw\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'proto':'udp'"
     ",'layer':'tls'}]}",
     "p:1:94: /allow/0/layer: UDP is not looked into; a rule with \"proto\": \"udp\" needs"
     " \"layer\": \"raw\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'TLS'"
     "}]}",
     "p:1:80: /allow/0/layer: expected \"raw\", \"tls\" or \"http\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':2}]}",
     "p:1:80: /allow/0/layer: expected \"raw\", \"tls\" or \"http\""},
    {"{'version':1,'allow':[{'id':'r','cidr':'203.0.113.0/24','ports':[1]}]}",
     "p:1:23: /allow/0: a rule by \"cidr\" has no name to check and needs \"layer\": \"raw"
     "\"; what passes is an opaque tunnel"},
    {"{'version':1,'allow':[{'id':'r','cidr':'203.0.113.0/24','ports':[1],'layer':'http'}]"
     "}",
     "p:1:77: /allow/0/layer: a rule by \"cidr\" has no name to check and needs \"layer\":"
     " \"raw\"; what passes is an opaque tunnel"},
    {"{'version':1,'allow':[{'id':'r','cidr':7,'ports':[1],'layer':'raw'}]}",
     "p:1:40: /allow/0/cidr: expected a string such as \"203.0.113.0/28\""},
    {"{'version':1,'allow':[{'id':'r','host':7,'ports':[1]}]}",
     "p:1:40: /allow/0/host: expected a string such as \"api.example.com\" or \"*.example."
     "com\""},
    {"{'version':1,'allow':[{'id':'r','host':'','ports':[443]}]}",
     "p:1:40: /allow/0/host: is empty; name a host such as \"api.example.com\""},
    {"{'version':1,'allow':[{'id':'r','host':'*','ports':[443]}]}",
     "p:1:40: /allow/0/host: would open every name there is; name hosts or domains"},
    {"{'version':1,'allow':[{'id':'r','host':'*.','ports':[443]}]}",
     "p:1:40: /allow/0/host: would open every name there is; name hosts or domains"},
    {"{'version':1,'allow':[{'id':'r','host':'**','ports':[443]}]}",
     "p:1:40: /allow/0/host: begins with \"**\"; \"*.\" already stands for one or more lab"
     "els"},
    {"{'version':1,'allow':[{'id':'r','host':'**.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: begins with \"**\"; \"*.\" already stands for one or more lab"
     "els"},
    {"{'version':1,'allow':[{'id':'r','host':'*.*.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a \"*\" that is not its whole first label; only \"*.\" at"
     " the front of a name is a wildcard"},
    {"{'version':1,'allow':[{'id':'r','host':'a.*.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a \"*\" that is not its whole first label; only \"*.\" at"
     " the front of a name is a wildcard"},
    {"{'version':1,'allow':[{'id':'r','host':'api*.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a \"*\" that is not its whole first label; only \"*.\" at"
     " the front of a name is a wildcard"},
    {"{'version':1,'allow':[{'id':'r','host':'*api.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a \"*\" that is not its whole first label; only \"*.\" at"
     " the front of a name is a wildcard"},
    {"{'version':1,'allow':[{'id':'r','host':'Example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has upper-case letters; names are compared in lower case, so "
     "write them so"},
    {"{'version':1,'allow':[{'id':'r','host':'example.com.','ports':[443]}]}",
     "p:1:40: /allow/0/host: ends with a dot; every rule is for a full name, write it with"
     "out"},
    {"{'version':1,'allow':[{'id':'r','host':'*.example.com.','ports':[443]}]}",
     "p:1:40: /allow/0/host: ends with a dot; every rule is for a full name, write it with"
     "out"},
    {"{'version':1,'allow':[{'id':'r','host':'.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has an empty label; names have something between their dots"},
    {"{'version':1,'allow':[{'id':'r','host':'api..example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has an empty label; names have something between their dots"},
    {"{'version':1,'allow':[{'id':'r','host':'example.com:443','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a port; ports go into \"ports\": [443]"},
    {"{'version':1,'allow':[{'id':'r','host':'https://example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a URL or a path; write the host alone, and paths into \"ht"
     "tp\": {\"paths\": […]}"},
    {"{'version':1,'allow':[{'id':'r','host':'example.com/v1','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a URL or a path; write the host alone, and paths into \"ht"
     "tp\": {\"paths\": […]}"},
    {"{'version':1,'allow':[{'id':'r','host':'exa_mple.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a character that no host name has; use letters, digits an"
     "d \"-\""},
    {"{'version':1,'allow':[{'id':'r','host':'exa mple.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a character that no host name has; use letters, digits an"
     "d \"-\""},
    {"{'version':1,'allow':[{'id':'r','host':'-a.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a label that begins or ends with \"-\", which no host nam"
     "e has"},
    {"{'version':1,'allow':[{'id':'r','host':'a-.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a label that begins or ends with \"-\", which no host nam"
     "e has"},
    {"{'version':1,'allow':[{'id':'r','host':'localhost','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a single label; its meaning depends on search lists, write"
     " the full name"},
    {"{'version':1,'allow':[{'id':'r','host':'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaaaaaaaaaaaaaaa.example.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a label of 64 bytes; a label has at most 63"},
    {"{'version':1,'allow':[{'id':'r','host':'abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcd"
     "efghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefgh"
     "i.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi.ab"
     "cdefghi.abcdefghi.abcdefghi.abcdefghi.abcdefghi','ports':[443]}]}",
     "p:1:40: /allow/0/host: is 259 bytes long; a name has at most 253"},
    {"{'version':1,'allow':[{'id':'r','host':'bücher.example','ports':[443]}]}",
     "p:1:40: /allow/0/host: has letters beyond ASCII, which look alike in many ways; if t"
     "he name is meant, write its A-label \"xn--bcher-kva.example\""},
    {"{'version':1,'allow':[{'id':'r','host':'*.bücher.example','ports':[443]}]}",
     "p:1:40: /allow/0/host: has letters beyond ASCII, which look alike in many ways; if t"
     "he name is meant, write its A-label \"*.xn--bcher-kva.example\""},
    {"{'version':1,'allow':[{'id':'r','host':'аррӏе.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has letters beyond ASCII, which look alike in many ways; if t"
     "he name is meant, write its A-label \"xn--80ak6aa92e.com\""},
    {"{'version':1,'allow':[{'id':'r','host':'example。com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has letters beyond ASCII, which look alike in many ways; if t"
     "he name is meant, write its A-label \"example.com\""},
    {"{'version':1,'allow':[{'id':'r','host':'exam\\u0000ple.com','ports':[443]}]}",
     "p:1:40: not valid JSON: \\u0000 is not allowed"},
    {"{'version':1,'allow':[{'id':'r','host':'exam\\nple.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: has a character that no host name has; use letters, digits an"
     "d \"-\""},
    {"{'version':1,'allow':[{'id':'r','host':'\\ud83d\\ude00.','ports':[443]}]}",
     "p:1:40: /allow/0/host: has bytes beyond ASCII and is no international name either; w"
     "rite the ASCII form that DNS uses (\"xn--…\")"},
    {"{'version':1,'allow':[{'id':'r','host':'203.0.113.7','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'2852039166','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'0xA9FEA9FE','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'0xa9fea9fe','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'0251.0376.0251.0376','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'169.254.43518','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'1.2.3.4.5','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'example.0x7f','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'example.123','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'[::1]','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'::ffff:169.254.169.254','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'127.1','ports':[443]}]}",
     "p:1:40: /allow/0/host: is an address in some spelling; use \"cidr\" with the canonic"
     "al form, such as \"203.0.113.7/32\""},
    {"{'version':1,'allow':[{'id':'r','host':'*.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a wildcard of \"com\", a public suffix: anybody can regist"
     "er a name below it; name the domains that are meant"},
    {"{'version':1,'allow':[{'id':'r','host':'*.co.uk','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a wildcard of \"co.uk\", a public suffix: anybody can regi"
     "ster a name below it; name the domains that are meant"},
    {"{'version':1,'allow':[{'id':'r','host':'*.github.io','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a wildcard of \"github.io\", a public suffix: anybody can "
     "register a name below it; name the domains that are meant"},
    {"{'version':1,'allow':[{'id':'r','host':'*.example','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a wildcard of \"example\", a public suffix: anybody can re"
     "gister a name below it; name the domains that are meant"},
    {"{'version':1,'allow':[{'id':'r','host':'*.s3.amazonaws.com','ports':[443]}]}",
     "p:1:40: /allow/0/host: is a wildcard of \"s3.amazonaws.com\", a public suffix: anybo"
     "dy can register a name below it; name the domains that are meant"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'http':{}}]}",
     "p:1:72: /allow/0/http: \"http\" needs \"layer\": \"http\", because only there reques"
     "ts are seen"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':[]}]}",
     "p:1:94: /allow/0/http: expected an object with \"methods\", \"paths\", \"websocket\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'method':['GET']}}]}",
     "p:1:95: /allow/0/http/method: \"http\" has no member of this name; remove it"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':[]}}]}",
     "p:1:105: /allow/0/http/methods: expected a list of 1 to 32 methods, such as [\"GET\""
     "]; leaving it out means any"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':'GET'}}]}",
     "p:1:105: /allow/0/http/methods: expected a list of 1 to 32 methods, such as [\"GET\""
     "]; leaving it out means any"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':['get']}}]}",
     "p:1:106: /allow/0/http/methods/0: expected a method such as \"GET\"; methods are upp"
     "er case, and leaving \"methods\" out means any"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':['GE T']}}]}",
     "p:1:106: /allow/0/http/methods/0: expected a method such as \"GET\"; methods are upp"
     "er case, and leaving \"methods\" out means any"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':['CONNECT']}}]}",
     "p:1:106: /allow/0/http/methods/0: CONNECT opens a tunnel through somebody else's pro"
     "xy, and cannot be allowed"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':['GET','GET']}}]}",
     "p:1:112: /allow/0/http/methods/1: \"GET\" is here twice; remove one"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'methods':['PROPFIND','PROPFIND']}}]}",
     "p:1:117: /allow/0/http/methods/1: \"PROPFIND\" is here twice; remove one"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':[]}}]}",
     "p:1:103: /allow/0/http/paths: expected a list of 1 to 1024 patterns, such as [\"/v1/"
     "**\"]; leaving it out means any path"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['v1']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern must begin with \"/\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/v1?x=1']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern names a query, which rules do not l"
     "ook at; end it before the \"?\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/v1/../x']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern is not in canonical form: no empty "
     "or dot segments, no encoded separators, no needless or lower-case escapes, nothing o"
     "utside printable ASCII"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/v1/%2e%2e/x']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern is not in canonical form: no empty "
     "or dot segments, no encoded separators, no needless or lower-case escapes, nothing o"
     "utside printable ASCII"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/v1%2fx']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern is not in canonical form: no empty "
     "or dot segments, no encoded separators, no needless or lower-case escapes, nothing o"
     "utside printable ASCII"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/v1//x']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern is not in canonical form: no empty "
     "or dot segments, no encoded separators, no needless or lower-case escapes, nothing o"
     "utside printable ASCII"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/a*/b']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern has a \"*\" inside a segment; \"*\""
     " stands for one whole segment, and \"/**\" at the end for everything below"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/a/**/b']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern has a \"*\" inside a segment; \"*\""
     " stands for one whole segment, and \"/**\" at the end for everything below"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/a**']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern has a \"*\" inside a segment; \"*\""
     " stands for one whole segment, and \"/**\" at the end for everything below"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':['/%41']}}]}",
     "p:1:104: /allow/0/http/paths/0: the path pattern is not in canonical form: no empty "
     "or dot segments, no encoded separators, no needless or lower-case escapes, nothing o"
     "utside printable ASCII"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'paths':[7]}}]}",
     "p:1:104: /allow/0/http/paths/0: expected a pattern such as \"/v1/messages\" or \"/v1"
     "/**\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','http':{'websocket':1}}]}",
     "p:1:107: /allow/0/http/websocket: expected true or false"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'inject':[{'s"
     "ecret':'s','name':'x-k'}]}]}",
     "p:1:72: /allow/0/inject: \"inject\" needs \"layer\": \"http\""},
    {"{'version':1,'allow':[{'id':'r','host':'*.example.com','ports':[443],'layer':'http',"
     "'inject':[{'secret':'s','name':'x-k'}]}]}",
     "p:1:85: /allow/0/inject: \"inject\" needs one exact host; a credential must not reac"
     "h every name of a domain"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[]}]}",
     "p:1:96: /allow/0/inject: expected a list of 1 to 16 injections"},
    {"{'version':1,'allow':[{'id':'r','host':'a.example.com','ports':[80,443],'layer':'htt"
     "p','inject':[{'secret':'s','name':'x-k'}]}]}",
     "p:1:88: /allow/0/inject: the rule opens port 80, where the credential would be reada"
     "ble by everybody on the way; give that port a rule of its own"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[7]}]}",
     "p:1:97: /allow/0/inject/0: expected an injection, an object with \"secret\" and \"na"
     "me\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'name':'x-k'}]}]}",
     "p:1:97: /allow/0/inject/0: an injection needs \"secret\", the name under which the s"
     "ecret provider knows it: 1 to 63 letters, digits, '.', '_' and '-'"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'../x','name':'x-k'}]}]}",
     "p:1:107: /allow/0/inject/0/secret: an injection needs \"secret\", the name under whi"
     "ch the secret provider knows it: 1 to 63 letters, digits, '.', '_' and '-'"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s'}]}]}",
     "p:1:97: /allow/0/inject/0: an injection needs \"name\", the name of a header, such a"
     "s \"x-api-key\": 1 to 64 letters, digits and \"-\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x k'}]}]}",
     "p:1:118: /allow/0/inject/0/name: an injection needs \"name\", the name of a header, "
     "such as \"x-api-key\": 1 to 64 letters, digits and \"-\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k\\r\\nHost: evil'}]}]}",
     "p:1:118: /allow/0/inject/0/name: an injection needs \"name\", the name of a header, "
     "such as \"x-api-key\": 1 to 64 letters, digits and \"-\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'Content-Length'}]}]}",
     "p:1:118: /allow/0/inject/0/name: the header \"content-length\" delimits or routes me"
     "ssages; a credential does not belong there"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','surface':'body'}]}]}",
     "p:1:134: /allow/0/inject/0/surface: expected \"header\" or \"basic\" (inside \"Autho"
     "rization: Basic\"); other places are not supported"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','surface':'basic','placeholder':'a__b'}]}]}",
     "p:1:111: /allow/0/inject/0/name: surface \"basic\" is always the header \"authorizat"
     "ion\"; leave \"name\" out"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','surface':'basic'}]}]}",
     "p:1:97: /allow/0/inject/0: surface \"basic\" needs a \"placeholder\" to put the secr"
     "et for"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','placeholder':'a_b'}]}]}",
     "p:1:138: /allow/0/inject/0/placeholder: a placeholder is 4 to 256 of the characters "
     "A-Z a-z 0-9 - . _ ~, which survive every encoding"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','placeholder':'password'}]}]}",
     "p:1:138: /allow/0/inject/0/placeholder: a placeholder contains at least one of - . _"
     " ~, so that it cannot be an ordinary word, such as \"sk-cella__K1__\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','placeholder':'a__/b'}]}]}",
     "p:1:138: /allow/0/inject/0/placeholder: a placeholder is 4 to 256 of the characters "
     "A-Z a-z 0-9 - . _ ~, which survive every encoding"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','require':true}]}]}",
     "p:1:134: /allow/0/inject/0/require: there is nothing to require without a \"placehol"
     "der\""},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','placeholder':'a__b','prefix':'Bearer '}]}]}",
     "p:1:145: /allow/0/inject/0/prefix: with a \"placeholder\" the cell writes the rest o"
     "f the header itself; leave \"prefix\" out"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k','prefix':'B\\r\\nX: '}]}]}",
     "p:1:133: /allow/0/inject/0/prefix: has a byte that is not printable ASCII; a header "
     "value is one line of it"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'layer':'http"
     "','inject':[{'secret':'s','name':'x-k'},{'secret':'t','name':'X-K'}]}]}",
     "p:1:125: /allow/0/inject/1: a second injection into the same place; both would be in"
     " force"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'limits':[]}]"
     "}",
     "p:1:81: /allow/0/limits: expected an object"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'limits':{'ru"
     "les':1}}]}",
     "p:1:82: /allow/0/limits/rules: a rule's \"limits\" has no member of this name; remov"
     "e it"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'limits':{'tx"
     "_bytes':0}}]}",
     "p:1:93: /allow/0/limits/tx_bytes: expected a whole number from 1 to 9007199254740992"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'limits':{'tx"
     "_bytes':'50M'}}]}",
     "p:1:93: /allow/0/limits/tx_bytes: expected a whole number from 1 to 9007199254740992"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'limits':{'co"
     "nns':65536}}]}",
     "p:1:90: /allow/0/limits/conns: expected a whole number from 1 to 65535"},
    {"{'version':1,'allow':[{'id':'r','host':'api.example.com','ports':[443],'limits':{'tx"
     "_bps':1.5}}]}",
     "p:1:91: /allow/0/limits/tx_bps: expected a whole number from 1024 to 900719925474099"
     "2"},
    {"{'version':1,'limits':{'rules':16001}}",
     "p:1:32: /limits/rules: expected a whole number from 1 to 16000"},
    {"{'version':1,'limits':{'rules':1},'allow':[{'id':'a','host':'a.example.com','ports':"
     "[1]},{'id':'b','host':'a.example.com','ports':[1]}]}",
     "p:1:90: /allow/1: more than 1 rules in one phase"},
    {"{'version':1,'limits':7}", "p:1:23: /limits: expected an object"},
    {"{'version':1,'dns':{'mode':'off'}}",
     "p:1:28: /dns/mode: expected \"synthetic\" (addresses that only lead to the gate) or "
     "\"real\" (the checked addresses themselves)"},
    {"{'version':1,'dns':{'types':['TXT']}}",
     "p:1:30: /dns/types/0: expected \"A\" or \"AAAA\"; other record types are never answe"
     "red, because they carry data"},
    {"{'version':1,'dns':{'types':[]}}",
     "p:1:29: /dns/types: expected a list such as [\"A\", \"AAAA\"]"},
    {"{'version':1,'dns':{'types':['A','A']}}",
     "p:1:34: /dns/types/1: \"A\" is here twice; remove one"},
    {"{'version':1,'dns':{'max_label':64}}",
     "p:1:33: /dns/max_label: expected a whole number from 1 to 63"},
    {"{'version':1,'dns':{'max_qps':0}}",
     "p:1:31: /dns/max_qps: expected a whole number from 1 to 10000"},
    {"{'version':1,'dns':{'log_allowed':'yes'}}",
     "p:1:35: /dns/log_allowed: expected true or false"},
    {"{'version':1,'dns':{'upstream':'8.8.8.8'}}",
     "p:1:21: /dns/upstream: \"dns\" has no member of this name; remove it"},
    {"{'version':1,'observe':{'allowed':'none'}}",
     "p:1:35: /observe/allowed: expected \"each\" (one event for every flow) or \"aggregat"
     "e\" (one a minute for each rule and name)"},
    {"{'version':1,'observe':{'alerts':{}}}", "p:1:34: /observe/alerts: expected a list of alerts"},
    {"{'version':1,'observe':{'alerts':[{}]}}",
     "p:1:35: /observe/alerts/0: an alert needs \"on\": \"new_name\", \"tx_over\", \"deny_"
     "burst\" or \"dns_suspect\""},
    {"{'version':1,'observe':{'alerts':[{'on':'x'}]}}",
     "p:1:41: /observe/alerts/0/on: an alert needs \"on\": \"new_name\", \"tx_over\", \"de"
     "ny_burst\" or \"dns_suspect\""},
    {"{'version':1,'observe':{'alerts':[{'on':'new_name','bytes':1}]}}",
     "p:1:52: /observe/alerts/0/bytes: an alert of this kind has no member of this name; r"
     "emove it"},
    {"{'version':1,'observe':{'alerts':[{'on':'tx_over','bytes':1}]}}",
     "p:1:35: /observe/alerts/0: the alert has no \"per\", the time it counts over; add on"
     "e, such as \"60s\""},
    {"{'version':1,'observe':{'alerts':[{'on':'tx_over','per':'60s'}]}}",
     "p:1:35: /observe/alerts/0: the alert has no \"bytes\"; add the number to warn at"},
    {"{'version':1,'observe':{'alerts':[{'on':'deny_burst','count':10,'per':'2d'}]}}",
     "p:1:71: /observe/alerts/0/per: expected a time from \"1s\" to \"1d\", such as \"60s"
     "\""},
    {"{'version':1,'deny':[{'id':'r','host':'example.com','limits':{}}]}",
     "p:1:53: /deny/0/limits: a denial has no member of this name; remove it"},
    {"{'version':1,'deny':[{'id':'r','host':'example.com','layer':'tls'}]}",
     "p:1:61: /deny/0/layer: a denial holds on every layer; leave \"layer\" out, or say \""
     "http\" to deny some requests to a host"},
    {"{'version':1,'deny':[{'id':'r','cidr':'203.0.113.0/24','layer':'http'}]}",
     "p:1:64: /deny/0/layer: a denial holds on every layer; leave \"layer\" out, or say \""
     "http\" to deny some requests to a host"},
    {"{'version':1,'deny':[{'id':'r','host':'example.com','http':{'paths':['/x']}}]}",
     "p:1:53: /deny/0/http: \"http\" needs \"layer\": \"http\", because only there request"
     "s are seen"},
    {"{'version':1,'deny':[{'id':'r','host':'example.com','layer':'http','http':{'websocke"
     "t':true}}]}",
     "p:1:76: /deny/0/http/websocket: \"http\" of a denial has no member of this name; rem"
     "ove it"},
    {"{'version':1,'deny':[{'id':'r','host':'example.com','ports':[]}]}",
     "p:1:61: /deny/0/ports: the rule needs \"ports\", a list such as [443, \"8000-8010\"]"
     "; there is no \"all ports\" default"},
};

static void test_bad(void **state)
{
    size_t i, wrong = 0;

    (void)state;
    for (i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *text = strdup(rows[i].text);
        struct errbuf eb;
        struct document d;
        char *p;
        for (p = text; (p = strchr(p, '\'')); p++)
            *p = '"';
        if (document_parse("p", text, strlen(text), &d, errbuf_init(&eb)) == 0) {
            print_error("accepted: %s\n", text);
            document_fini(&d);
            wrong++;
        } else if (strcmp(eb.text, rows[i].says) != 0) {
            print_error("%s\n  says  %s\n  not   %s\n", text, eb.text, rows[i].says);
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
    assert_true(ARRAY_LEN(rows) >= 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bad)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
