package pager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// linkTimeout limits a process's wait for what the mapper does at once.
const linkTimeout = 10 * time.Second

// Serve does the work of the pager's process, or of its guard, as which the pager starts this program once more.
// It returns when the mapper needs it no more, or when the memory has ended, with the
// reason if the mapper could not be told. open makes the source, and is not called in the guard.
func Serve(ctx context.Context, open func(context.Context) (Source, error)) error {
	if what := os.Getenv(guardVariable); what != "" {
		return guard(what)
	}
	// The number stays with the process, for the guard.
	file, err := duplicate(linkFD)
	if err != nil {
		return fmt.Errorf("%w: descriptor %d: %w", ErrLink, linkFD, err)
	}
	l, err := openLink(file)
	if err != nil {
		return err
	}
	defer l.Close()
	m, err := l.Receive(time.Now().Add(linkTimeout))
	switch {
	case err != nil:
		return fmt.Errorf("wait for the mapper: %w", err)
	case m.Kind != KindOpen || m.Version != LinkVersion:
		return fmt.Errorf("%w: %q of version %d comes first, not %q of %d", ErrLink, m.Kind, m.Version, KindOpen, LinkVersion)
	}
	s := session{link: l}
	if err := s.run(ctx, m, open); err != nil {
		if s.send(Message{Kind: KindFailed, Failure: NewFailure(err)}) != nil {
			return err // it is not said elsewhere
		}
	}
	return nil
}

// session is the pager's side of a link.
type session struct {
	link  *Link
	pager *Pager
}

func (s *session) run(ctx context.Context, m Message, open func(context.Context) (Source, error)) error {
	source, err := open(ctx)
	if err != nil {
		return fmt.Errorf("open the source of pages: %w", err)
	}
	if c, ok := source.(io.Closer); ok {
		defer c.Close()
	}
	var life *os.File
	var unreported bool // the pager has failed, and the mapper does not know
	deadline := m.Deadline
	s.pager, err = New(source, Config{Local: m.Local, Ahead: m.Ahead, Deadline: deadline,
		Failed: func(err error) {
			unreported = !errors.Is(err, ErrStopped) && s.send(Message{Kind: KindFailed, Failure: NewFailure(err)}) != nil
		},
		// A pipe that is full says enough.
		Alive: func() {
			_ = life.SetWriteDeadline(time.Now().Add(time.Millisecond))
			_, _ = life.Write([]byte{1})
		},
	})
	if err != nil {
		return err
	}
	size := source.Size()
	if err := s.send(Message{Kind: KindDone, ID: m.ID, Size: size, PageSize: source.PageSize()}); err != nil {
		return err
	}
	m, err = s.link.Receive(time.Now().Add(linkTimeout))
	switch {
	case err != nil:
		return fmt.Errorf("wait for the mapping: %w", err)
	case m.Kind != KindMap:
		return fmt.Errorf("%w: %q instead of a mapping", ErrLink, m.Kind)
	}
	memory := &Memory{File: fileFD, Base: m.Base, Size: uint64(size)}
	guard, life, err := startGuard(memory, deadline)
	if err != nil {
		return err
	}
	defer life.Close()
	if memory.Object, err = userfault.Take(objectFD); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	guarded := make(chan struct{})
	go func() {
		stop(fmt.Errorf("%w: its guard has ended, %v", ErrDied, guard.Wait()))
		close(guarded)
	}()
	go s.listen(ctx, stop)
	if err := s.send(Message{Kind: KindDone, ID: m.ID}); err != nil {
		stop(err)
	}
	if err = s.pager.Run(ctx, memory); errors.Is(err, ErrStopped) { // the mapper has closed the link
		life.Close()
		<-guarded
	}
	if unreported {
		return err
	}
	return nil
}

func (s *session) send(m Message) error { return s.link.Send(m, time.Now().Add(linkTimeout)) }

// listen does what the mapper asks for until it has closed the mapping or has ended. What it
// had written until then is written back.
func (s *session) listen(ctx context.Context, stop context.CancelCauseFunc) {
	defer stop(ErrStopped)
	for ctx.Err() == nil {
		m, err := s.link.Receive(time.Time{})
		if err != nil {
			// A failure is the pager's, and has ended it.
			_ = s.pager.Sync(ctx)
			return
		}
		switch m.Kind {
		case KindSync:
			go func() { s.answer(m.ID, s.pager.Sync(ctx)) }()
		case KindStats:
			s.answer(m.ID, nil)
		}
	}
}

func (s *session) answer(id uint64, err error) {
	stats := s.pager.Stats()
	// If it fails the mapper is gone, which is noticed by listening.
	_ = s.send(Message{Kind: KindDone, ID: id, Stats: &stats, Failure: NewFailure(err)})
}
