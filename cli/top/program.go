package top

import (
	"context"
	"errors"
	"io"
	"time"

	tea "charm.land/bubbletea/v2"
)

// How often the source is queried, at most and at least, and how long a query may take.
const (
	every    = time.Second
	seldom   = 30 * time.Second
	patience = 30 * time.Second
)

// Terminal is where a program reads keys and draws.
type Terminal struct {
	In  io.Reader
	Out io.Writer
	Env []string
}

// Run shows the data of the source until the operator quits or ctx ends.
func Run(ctx context.Context, source Source, where string, text Text, terminal Terminal) error {
	p := &program{ctx: ctx, source: source, screen: newScreen(where, text)}
	_, err := tea.NewProgram(p, tea.WithContext(ctx), tea.WithInput(terminal.In), tea.WithOutput(terminal.Out),
		tea.WithEnvironment(terminal.Env), tea.WithoutSignalHandler()).Run()
	p.stop()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// program loads the screen's data, and passes keys to it.
type program struct {
	ctx     context.Context
	source  Source
	screen  *screen
	history []Overview // of the last minute

	turn     int // counts the queries: the answer to an earlier one is too late
	cancel   context.CancelFunc
	failures int
}

type (
	clock  time.Time
	due    int // the turn for which it is time
	loaded struct {
		turn int
		data data
		took time.Duration
		err  error
	}
	changed struct {
		change change
		err    error
	}
)

// Init implements tea.Model.
func (p *program) Init() tea.Cmd { return tea.Batch(p.look(), tick()) }

func tick() tea.Cmd { return tea.Tick(every, func(t time.Time) tea.Msg { return clock(t) }) }

// View implements tea.Model.
func (p *program) View() tea.View {
	v := tea.NewView(p.screen.frame())
	v.AltScreen = true
	return v
}

// Update implements tea.Model.
func (p *program) Update(m tea.Msg) (tea.Model, tea.Cmd) {
	p.screen.now = time.Now()
	switch m := m.(type) {
	case tea.WindowSizeMsg:
		p.screen.width, p.screen.height = m.Width, m.Height
	case tea.KeyPressMsg:
		return p, p.key(m.String())
	case clock:
		return p, tick()
	case due:
		if int(m) == p.turn {
			return p, p.look()
		}
	case loaded:
		if m.turn == p.turn {
			return p, p.take(m)
		}
	case changed:
		p.screen.notice = "done: " + m.change.String()
		if m.err != nil {
			p.screen.notice = "not done: " + m.err.Error()
		}
		return p, p.look()
	}
	return p, nil
}

func (p *program) key(name string) tea.Cmd {
	asked := p.screen.press(name)
	switch {
	case asked.quit:
		return tea.Quit
	case asked.do != nil:
		return p.change(*asked.do)
	case asked.load:
		return p.look()
	}
	return nil
}

// look loads the screen's data, and replaces a query in progress.
func (p *program) look() tea.Cmd {
	p.stop()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	p.turn++
	p.cancel = cancel
	turn, at := p.turn, *p.screen.at()
	return func() tea.Msg {
		defer cancel()
		begun := time.Now()
		d, err := load(ctx, p.source, at)
		return loaded{turn, d, time.Since(begun), err}
	}
}

func (p *program) stop() {
	if p.cancel != nil {
		p.cancel()
	}
}

// load queries only what a place shows.
func load(ctx context.Context, source Source, at place) (d data, err error) {
	if d.Overview, err = source.Overview(ctx); err != nil {
		return d, err
	}
	switch at.view {
	case errorsView:
		d.Errors, err = source.Errors(ctx)
	case taskView:
		d.Task = &Detail{}
		*d.Task, err = source.Task(ctx, at.task)
	case workersView, runningView, tasksView:
		f := at.filter
		if at.view != tasksView || at.worker != "" {
			f.State = "running"
		}
		d.Tasks, err = source.Tasks(ctx, f)
	}
	return d, err
}

// take shows the loaded data, and schedules the next query.
func (p *program) take(l loaded) tea.Cmd {
	if l.err != nil {
		p.failures++
		p.screen.trouble = l.err.Error()
	} else {
		p.failures, p.screen.trouble = 0, ""
		p.screen.data, p.screen.loaded = l.data, true
		p.remember(l.data.Overview)
	}
	turn := due(p.turn)
	return tea.Tick(interval(l.took, p.failures), func(time.Time) tea.Msg { return turn })
}

// interval returns how long to wait before the next query: four times as long as the last one took, so that a slow
// source is left alone most of the time, and twice as long after each failure.
func interval(took time.Duration, failures int) time.Duration {
	return min(max(every, 4*took)<<min(failures, 5), seldom)
}

func (p *program) remember(o Overview) {
	p.history = append(p.history, o)
	for o.At.Sub(p.history[0].At) > time.Minute {
		p.history = p.history[1:]
	}
	p.screen.arrivals = arrivals(p.history[0], o)
}

func (p *program) change(c change) tea.Cmd {
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(p.ctx, patience)
		defer cancel()
		do := map[string]func(context.Context, string) error{"pause": p.source.Pause, "resume": p.source.Resume,
			"retry": p.source.Retry}
		return changed{c, do[c.verb](ctx, c.name)}
	}
}
