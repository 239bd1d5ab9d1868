// Package userfault is Linux's userfaultfd (userfaultfd(2), ioctl_userfaultfd(2) and
// include/uapi/linux/userfaultfd.h): a process registers a range of its memory, and the one that
// has the descriptor is told of the faults there, puts pages in place and wakes the threads
// that wait. That may be another process: addresses in this package are those of the process
// that has made the object, and so are numbers, not pointers.
//
// Only files in memory (memfd) are used here. Pages are put in place by UFFDIO_COPY, and not
// by writing to the file and UFFDIO_CONTINUE: a page comes into the file with all its bytes
// or not at all, wherever the process that copies is killed; it can be mapped protected
// against writing in the same call; and it is known to the kernel since 4.11, against 5.14.
// Protection of files in memory against writing is the younger part: Linux 5.19.
package userfault
