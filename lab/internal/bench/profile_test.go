package bench_test

import (
	"compress/gzip"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// TestProfile: both processes leave a profile, which is a compressed file.
func TestProfile(t *testing.T) {
	p := task(bench.Bandwidth, "udp")
	p.Spec.ProfileFolder = t.TempDir()
	if _, err := bench.Run(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(p.Spec.ProfileFolder, "*.pprof"))
	if err != nil || len(names) != 2 || !strings.Contains(names[0], "echo") || !strings.Contains(names[1], "source") {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		z, err := gzip.NewReader(f)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b, err := io.ReadAll(z); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
}

func TestProfileFolderMissing(t *testing.T) {
	p := task(bench.Bandwidth, "udp")
	p.Spec.ProfileFolder = filepath.Join(t.TempDir(), "gone")
	if _, err := bench.Run(context.Background(), p); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%v", err)
	}
}
