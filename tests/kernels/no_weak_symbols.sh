#!/bin/sh
# no_weak_symbols.sh NM OBJECT...
# Fails where an object that is compiled for an instruction set defines a weak symbol: the linker keeps one copy of those for
# the whole program, and if it keeps this one, the program dies on machines without the instructions.
nm=$1
shift
[ $# -gt 0 ] || { echo "no objects to look at"; exit 1; }
status=0
for object; do
  # W, V, u: weak function, weak object, unique. Two are the compilers' own and hold no instruction of any set.
  weak=$("$nm" --defined-only "$object" | grep -E '^[0-9a-f]* +[WVu] ' | grep -vE ' (DW\.ref\..*|__clang_call_terminate)$')
  tables=$("$nm" --defined-only "$object" | grep -c '_table')
  if [ "$tables" -eq 0 ]; then echo "$object: has no table, is it an object of kernels?"; status=1; fi
  if [ -n "$weak" ]; then printf '%s defines weak symbols:\n%s\n' "$object" "$weak"; status=1; fi
done
exit $status
