package machine_test

import (
	"testing"

	"pgregory.net/rapid"
)

// TestProgramsAgainstKernel compares whole programs with the kernel: verdict, frame
// and what maps hold after each of several runs.
func TestProgramsAgainstKernel(t *testing.T) {
	needBPF(t)
	ran, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		code := assemble(t, generator{t}.program())
		w, err := newTwin(t, code, generatedMaps...)
		if err != nil {
			refused++
			t.Logf("refused: %v\n%v", err, code)
			return
		}
		defer w.close()
		ran++
		bytes := rapid.SliceOfN(rapid.Byte(), memorySize, memorySize)
		w.set(t, mapMemory, make([]byte, 4), bytes.Draw(t, "memory"))
		defer func() {
			if t.Failed() {
				t.Logf("%v", code)
			}
		}()
		for range 3 {
			w.run(t, rapid.SliceOfN(rapid.Byte(), frameSize-1, frameSize+16).Draw(t, "frame"))
			w.compare(t)
		}
	})
	t.Logf("%d programs, the kernel refused %d", ran, refused)
	if refused > ran/10 {
		t.Errorf("the kernel ran %d programs and refused %d", ran, refused)
	}
}
