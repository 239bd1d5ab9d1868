package scaling

import (
	"context"
	"fmt"
	"testing"
	"os"
	"time"
	"strings"
	_ "github.com/trapeze-nic/trapeze/emulator"
)

func TestQuick(t *testing.T) {
	p := Default()
	p.For = 50 * time.Millisecond
	p.Curves = strings.Split(os.Getenv("C"), ",")
	r, err := p.Run(context.Background())
	for _, c := range r.Curves {
		fmt.Println(c.Name, c.Growth.Sentence(c.Unit, c.Of))
		for _, p := range c.Points {
			fmt.Printf("  %d %.1f (%.1f..%.1f)\n", p.N, p.Value, p.Low, p.High)
		}
	}
	fmt.Printf("%+v\n", r.Memory)
	if err != nil {
		t.Fatal(err)
	}
}
