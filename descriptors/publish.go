package descriptors

// storeRelease32 stores v at p after everything that precedes it in program
// order. sync/atomic would do, but compiles to a locked exchange on amd64,
// where a plain store already releases.
//
//go:noescape
func storeRelease32(p *uint32, v uint32)
