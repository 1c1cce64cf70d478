package cli

import (
	"fmt"
	"strings"
	"time"
)

// progress draws a bar on stderr if that is a terminal, and otherwise nothing.
type progress struct {
	app     *App
	size    int64 // in bytes, tasks or files; 0 if unknown
	done    int64
	started time.Time
	drawn   time.Time
}

// patience is how long people wait before they need to see progress.
const patience = 300 * time.Millisecond

func newProgress(app *App, size int64) *progress {
	return &progress{app: app, size: size, started: time.Now()}
}

// add counts progress in the units of size. tasks is the number of tasks so far.
func (p *progress) add(bytes int64, tasks int) {
	p.done += bytes
	rate := float64(tasks) / max(time.Since(p.started).Seconds(), 0.001)
	line := fmt.Sprintf("%d tasks  %.0f/s", tasks, rate)
	if p.size > 0 {
		const width = 30
		share := min(float64(p.done)/float64(p.size), 1)
		full := int(share * width)
		line = fmt.Sprintf("[%s%s] %3.0f%%  %s", strings.Repeat("#", full), strings.Repeat(".", width-full), share*100, line)
	}
	p.draw(line)
}

// steps draws the step that a command is at, and for how long, until end is called.
func (p *progress) steps() (step func(text string), end func()) {
	steps, over := make(chan string), make(chan struct{})
	go func() {
		defer close(over)
		defer p.end()
		tick := time.NewTicker(patience)
		defer tick.Stop()
		var text string
		began := time.Now()
		for {
			select {
			case next, is := <-steps:
				if !is {
					return
				}
				text, began = next, time.Now()
			case <-tick.C:
			}
			if text != "" {
				p.draw(fmt.Sprintf("%s  %s", p.app.clean(text), time.Since(began).Truncate(time.Second)))
			}
		}
	}()
	return func(text string) { steps <- text }, func() {
		close(steps)
		<-over
	}
}

// draw replaces the line on the terminal, at most ten times a second.
func (p *progress) draw(line string) {
	if !p.app.watched || p.app.flags.quiet || time.Since(p.started) < patience ||
		time.Since(p.drawn) < 100*time.Millisecond {
		return
	}
	p.drawn = time.Now()
	fmt.Fprintf(p.app.Err, "\r\x1b[K%s", line)
}

// end clears the line for later output.
func (p *progress) end() {
	if !p.drawn.IsZero() {
		fmt.Fprint(p.app.Err, "\r\x1b[K")
	}
}
