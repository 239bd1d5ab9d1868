// Package guest holds tests that run inside a virtual machine (see ci/vm/run):
// package vfio/kernel drives devices that nobody here wrote through a real
// Linux kernel. Elsewhere they are skipped.
package guest
