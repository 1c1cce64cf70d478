package tend

// window is how many tasks of a queue may have their turn at a time: enough to keep
// its workers busy until the next round, and not so many that a late tenant finds
// all turns given away.
type window struct {
	size int
	held int  // when the last round was over
	dry  bool // workers have ended nearly all that they were given since
}

const largestWindow = 20000

// room is how many more may have their turn. The window is twice what workers have
// ended since the last round, besides what they hold, and shrinks bit by bit.
func (w *window) room(held, concurrency int) int {
	least := 2*concurrency + 20
	ended := max(w.held-held, 0)
	w.dry = 4*held < w.held
	w.size = min(max(w.size*7/8, 2*ended+least), max(largestWindow, least))
	w.held = held
	return w.size - held
}

// given says how many were granted of what there was room for.
func (w *window) given(n int) { w.held += n }
