package published

import "github.com/trapeze-nic/trapeze/lab/internal/profile"

type computation = func(m *Model) (float64, error)

func latency(platform, policy string) computation {
	return func(m *Model) (float64, error) { return m.Latency(platform, policy, 0, 0, page) }
}

func stream(platform, policy string) computation {
	return func(m *Model) (float64, error) { return m.Bandwidth(platform, policy, 0, 0, page, false) }
}

// reduction of latency against store and forward, in percent.
func reduction(platform, policy string, pulse int) computation {
	return func(m *Model) (float64, error) {
		whole, err := m.Latency(platform, "store-and-forward", 0, 0, page)
		if err != nil {
			return 0, err
		}
		l, err := m.Latency(platform, policy, pulse, pulse, page)
		return 100 * (1 - l/whole), err
	}
}

func busOf(platform string, f func(p *profile.Profile) float64) computation {
	return func(m *Model) (float64, error) {
		p, err := m.Platform(platform)
		if err != nil {
			return 0, err
		}
		return f(p), nil
	}
}

func linkLatency(p *profile.Profile) float64 { return p.Link.Latency.Microseconds() }

func headerBytes(p *profile.Profile) float64 { return float64(p.Link.Header) }

func readBandwidth(p *profile.Profile) float64 { return p.Sender.Read.Bandwidth() }

func readCost(p *profile.Profile) profile.Cost { return p.Sender.Read }

func writeCost(p *profile.Profile) profile.Cost { return p.Receiver.Write }

func busTime(platform string, cost func(*profile.Profile) profile.Cost, bytes int) computation {
	return busOf(platform, func(p *profile.Profile) float64 { return cost(p).Transfer(bytes).Microseconds() })
}

func busRate(platform string, cost func(*profile.Profile) profile.Cost, bytes int) computation {
	return busOf(platform, func(p *profile.Profile) float64 {
		return float64(bytes) / cost(p).Transfer(bytes).Microseconds()
	})
}

func linkBandwidth(scale float64) computation {
	return busOf(p6, func(p *profile.Profile) float64 { return p.Link.Pulse.Bandwidth() * scale })
}

func lowestBus(m *Model) (float64, error) {
	lowest := 0.0
	for _, name := range []string{p6, pii} {
		p, err := m.Platform(name)
		if err != nil {
			return 0, err
		}
		for _, b := range []float64{p.Sender.Read.Bandwidth(), p.Receiver.Write.Bandwidth()} {
			if lowest == 0 || b < lowest {
				lowest = b
			}
		}
	}
	return lowest, nil
}

func slowest4K(m *Model) (float64, error) {
	slowest := 0.0
	for _, name := range []string{p6, pii, miata} {
		l, err := m.Latency(name, "amp", 0, 0, 4096)
		if err != nil {
			return 0, err
		}
		slowest = max(slowest, l)
	}
	return slowest, nil
}

func bestMinPulse(m *Model) (float64, error) {
	best, lowest := 0, 0.0
	for n := 64; n <= 4096; n *= 2 {
		l, err := m.Latency(p6, "eager", n, n, page)
		if err != nil {
			return 0, err
		}
		if best == 0 || l < lowest {
			best, lowest = n, l
		}
	}
	return float64(best), nil
}

// reductions of 8 KiB latency by each cut-through policy on each platform but the
// 440LX, static pulses at their best.
func reductions(m *Model) ([]float64, error) {
	var all []float64
	for _, platform := range []string{p6, alcor, miata} {
		static, _, err := m.Best(platform, "static", page, 128, 4096, 128)
		if err != nil {
			return nil, err
		}
		for _, c := range []struct {
			policy string
			pulse  int
		}{{"pure-cut-through", 0}, {"amp", 0}, {"static", static}} {
			r, err := reduction(platform, c.policy, c.pulse)(m)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}

func leastReduction(m *Model) (float64, error) {
	all, err := reductions(m)
	if err != nil {
		return 0, err
	}
	least := all[0]
	for _, r := range all {
		least = min(least, r)
	}
	return least, nil
}

func greatestReduction(m *Model) (float64, error) {
	all, err := reductions(m)
	greatest := 0.0
	for _, r := range all {
		greatest = max(greatest, r)
	}
	return greatest, err
}

func lostBandwidth(m *Model) (float64, error) {
	p, err := m.Platform(p6)
	if err != nil {
		return 0, err
	}
	b, err := m.Bandwidth(p6, "amp", 0, 0, page, false)
	return 100 * (1 - b/p.Sender.Read.Bandwidth()), err
}

func bestStatic(m *Model) (float64, error) {
	_, l, err := m.Best(hpdc97, "static", page, 128, 4096, 128)
	return l, err
}

func bestStaticReduction(m *Model) (float64, error) {
	best, err := bestStatic(m)
	if err != nil {
		return 0, err
	}
	whole, err := m.Latency(hpdc97, "store-and-forward", 0, 0, page)
	return 100 * (1 - best/whole), err
}

func eagerOverStatic(m *Model) (float64, error) {
	best, err := bestStatic(m)
	if err != nil {
		return 0, err
	}
	eager, err := m.Latency(hpdc97, "eager", 0, 0, page)
	return 100 * (1 - eager/best), err
}

// nearOptimalPulse returns the middle of the range of static pulses whose latency
// is within 2 % of the best: the curve is flat and its very minimum means little.
func nearOptimalPulse(m *Model) (float64, error) {
	best, err := bestStatic(m)
	if err != nil {
		return 0, err
	}
	low, high := 0, 0
	for n := 128; n <= 4096; n += 128 {
		l, err := m.Latency(hpdc97, "static", n, n, page)
		if err != nil {
			return 0, err
		}
		if l <= best*1.02 {
			if low == 0 {
				low = n
			}
			high = n
		}
	}
	return float64(low+high) / 2, nil
}

func benefitStarts(m *Model) (float64, error) {
	for n := 64; n <= page; n += 64 {
		whole, err := m.Latency(hpdc97, "store-and-forward", 0, 0, n)
		if err != nil {
			return 0, err
		}
		eager, err := m.Latency(hpdc97, "eager", min(128, n), min(128, n), n)
		if err != nil {
			return 0, err
		}
		if eager < 0.95*whole {
			return float64(n) / 1024, nil
		}
	}
	return 0, nil
}
