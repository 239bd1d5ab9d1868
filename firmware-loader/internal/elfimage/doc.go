// Package elfimage reads the ELF files that hold control programs, as `clang -O2 -g -target bpf -c`
// makes them, and writes them with another note.
//
// An image is an untrusted file. Read checks all of its structure, so that other
// readers (the ELF loader of github.com/cilium/ebpf, debug/elf) meet no file that
// they would read out of bounds, or for which they would allocate more than a small
// multiple of its size: headers, overlaps, string tables, symbols, relocations, and
// the type information that belongs to maps and source lines. It says nothing about
// what the programs do.
package elfimage
