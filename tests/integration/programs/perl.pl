# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The cella authors
# Processes, pipes, sockets, formats, regular expressions, sorting.
use strict; use warnings; use POSIX qw(:sys_wait_h); use Socket; use Fcntl qw(:flock); use File::Find; use File::Temp; use Time::HiRes qw(sleep);
$| = 1;
my @w = map { my $n = $_; pipe(my $r, my $w); my $pid = fork; if (!$pid) { close $r; print $w $n * $n; close $w; exit $n } close $w; my $l = <$r>; waitpid $pid, 0; "$l:" . ($? >> 8) } 1 .. 5;
print "@w\n";
socketpair(my $x, my $y, AF_UNIX, SOCK_STREAM, 0) or die; syswrite $x, "hello"; sysread $y, my $got, 10; print "$got\n";
my %c; $c{length $_}++ for map { sprintf "%b", $_ } 1 .. 1000; print join(",", map { "$_=$c{$_}" } sort { $a <=> $b } keys %c), "\n";
open my $f, ">", "file" or die; flock $f, LOCK_EX; print $f "line $_\n" for 1 .. 10; close $f; open $f, "<", "file"; my @l = <$f>; print scalar(@l), " $l[-1]";
mkdir "dir"; mkdir "dir/$_" for 1 .. 3; find(sub { }, "dir"); my @d = glob "dir/*"; print "@d\n"; rmdir for @d;
local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; select undef, undef, undef, 10; }; print $@;
my $out = `echo shell; exit 4`; print $out, $? >> 8, "\n"; print join(" ", "a1b22c333" =~ /(\d+)/g), "\n"; local $0 = "renamed"; print -e "/proc/self/exe" ? "exe\n" : "none\n";
print POSIX::strftime("%F %T", gmtime 86400 * 365), "\n"; my @s = sort { $a <=> $b } map { $_ * 7919 % 1009 } 1 .. 1008; print "$s[0] $s[-1]\n"; system "kill -9 \$\$"; print $? & 127, "\n";
