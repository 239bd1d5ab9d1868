package opaque_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/opaque"
)

// FuzzManifest: nothing makes Parse panic, and errors can be printed.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifest("name", "name")))
	f.Fuzz(func(t *testing.T, b []byte) {
		img, err := opaque.Parse("manifest.toml", b)
		if (img == nil) == (err == nil) {
			t.Fatalf("%v and %v", img, err)
		}
		if err != nil {
			var e *opaque.Error
			if !errors.As(err, &e) || strings.ContainsAny(err.Error(), "\x00\x1b\n\r") {
				t.Errorf("%T: %q", err, err)
			}
			return
		}
		if len(img.Segments) == 0 || img.Name == "" || img.Ready == 0 {
			t.Errorf("accepted: %+v", img)
		}
		for _, s := range img.Segments {
			if !filepath.IsLocal(s.File) {
				t.Errorf("accepted: %q", s.File)
			}
		}
	})
}
