package tend

// window is how many tasks of a queue may have a turn at a time: enough to keep its workers busy until the next round,
// and few enough that a late tenant still gets turns.
type window struct {
	size int
	held int // when the last round ended
	// Workers have since ended nearly all tasks that they were given.
	dry bool
}

const largestWindow = 20000

// room returns how many more tasks may get a turn. The window is twice as many tasks as workers have ended since the
// last round, plus a minimum that grows with concurrency. It shrinks gradually.
func (w *window) room(held, concurrency int) int {
	least := 2*concurrency + 20
	ended := max(w.held-held, 0)
	w.dry = 4*held < w.held
	w.size = min(max(w.size*7/8, 2*ended+least), max(largestWindow, least))
	w.held = held
	return w.size - held
}

// given records how many turns were granted.
func (w *window) given(n int) { w.held += n }
