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

type loggingKey struct{}

// WithLogging returns a context in which Logger writes to w. format is text or json; level is
// debug, info, warn or error, or empty for what each command logs by itself.
func WithLogging(ctx context.Context, w io.Writer, format, level string) context.Context {
	return context.WithValue(ctx, loggingKey{}, func(least slog.Level) *slog.Logger {
		if level != "" {
			_ = least.UnmarshalText([]byte(level)) // it is one of them
		}
		o := &slog.HandlerOptions{Level: least}
		if format == "json" {
			return slog.New(slog.NewJSONHandler(w, o))
		}
		return slog.New(slog.NewTextHandler(w, o))
	})
}

// Logger is where a command logs what happens while it runs, from a level on unless the user has
// named another one.
func Logger(ctx context.Context, usual slog.Level) *slog.Logger {
	if logger, ok := ctx.Value(loggingKey{}).(func(slog.Level) *slog.Logger); ok {
		return logger(usual)
	}
	return slog.New(slog.DiscardHandler)
}
