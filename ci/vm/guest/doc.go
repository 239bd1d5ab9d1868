// Package guest holds tests that run inside a virtual machine (see ci/vm/run):
// package vfio/kernel drives devices of other authors through a real
// Linux kernel. Elsewhere they are skipped.
package guest
