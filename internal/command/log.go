package command

import (
	"context"
	"io"
	"log/slog"
	"math"
)

// Quiet is the level of a command that logs nothing by itself: what goes wrong shows in its
// errors.
const Quiet = slog.Level(math.MaxInt32)

// logging has the logger of a program's commands, by its flags.
type logging struct {
	w     io.Writer
	json  bool
	level *slog.Level // nil: what each command logs by itself
}

type loggingKey struct{}

// WithLogging returns a context in which Logger writes to w. format is text or json; level is
// debug, info, warn or error, or empty for what each command logs by itself.
func WithLogging(ctx context.Context, w io.Writer, format, level string) context.Context {
	l := &logging{w: w, json: format == "json"}
	if level != "" {
		l.level = new(slog.Level)
		_ = l.level.UnmarshalText([]byte(level)) // it is one of them
	}
	return context.WithValue(ctx, loggingKey{}, l)
}

// Logger is where a command logs what happens while it runs, from a level on unless the user has
// named another one.
func Logger(ctx context.Context, usual slog.Level) *slog.Logger {
	l, ok := ctx.Value(loggingKey{}).(*logging)
	if !ok {
		return slog.New(slog.DiscardHandler)
	}
	if l.level != nil {
		usual = *l.level
	}
	o := &slog.HandlerOptions{Level: usual}
	if l.json {
		return slog.New(slog.NewJSONHandler(l.w, o))
	}
	return slog.New(slog.NewTextHandler(l.w, o))
}
