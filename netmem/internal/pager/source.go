package pager

import "context"

// Source is where pages come from and go to. Its methods are called by many goroutines at a
// time. Everything that the pager waits for there has the pager's deadline, whether the source
// minds the context or not.
type Source interface {
	// Size in bytes, a multiple of PageSize.
	Size() int64
	// PageSize in bytes, a power of two from 4 KiB to 64 KiB.
	PageSize() int
	// Alloc returns memory, aligned to pages of the machine, that ReadPage and WritePage move
	// to and from without a copy. It is called once, before them.
	Alloc(bytes int) ([]byte, error)
	// ReadPage reads a page to an offset in the memory of Alloc, and returns its version.
	// With an error, what it has left there is not looked at.
	ReadPage(ctx context.Context, page uint64, at int) (version uint64, err error)
	// WritePage writes a page from an offset in the memory of Alloc, whole or not at all. The
	// version is that which the page had when it was read or written last; it returns the
	// new one. It fails, and changes nothing, if the page has another version.
	WritePage(ctx context.Context, page uint64, at int, version uint64) (uint64, error)
}
