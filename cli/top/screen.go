package top

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// view is one of the screen's views.
type view string

const (
	queuesView  view = "Queues"
	kindsView   view = "Kinds"
	workersView view = "Workers"
	errorsView  view = "Errors"
	runningView view = "Running"
	tasksView   view = "Tasks"
	taskView    view = "Task"
)

// tabs are the views that digits open, starting from 1.
var tabs = []view{queuesView, kindsView, workersView, errorsView, runningView}

// states are the states through which the key s cycles in a list of tasks.
var states = []string{"", "available", "running", "retryable", "scheduled", "pending", "completed", "cancelled",
	"discarded"}

// place is where the screen is: a view, its subject, and the selected row.
type place struct {
	view   view
	filter Filter // of tasks
	worker string // only this worker's tasks are shown
	task   string
	row    string // key of the selected row
	find   string // rows without this text are hidden
}

// data is the answer of the source. The lists are those of the current place.
type data struct {
	Overview
	Errors []ErrorGroup
	Tasks  []Task
	Task   *Detail
}

// change is a request from a key to change something in the source.
type change struct {
	verb string // pause, resume or retry
	name string // of the queue, or the task's id
}

func (c change) String() string {
	if c.verb == "retry" {
		return "retry task " + c.name
	}
	return c.verb + " queue " + c.name
}

// screen is everything that a frame is made of.
type screen struct {
	where    string // the source, as text
	now      time.Time
	data     data
	arrivals map[string]float64 // tasks per minute, by queue; absent if unknown
	loaded   bool               // data belongs to the current place
	trouble  string             // why the latest query failed
	notice   string             // result of the latest change
	trail    []place            // the last one is shown
	typing   bool               // keys go to the filter
	ask      *change            // waits for y or n
	help     bool

	width, height int
	text          Text
}

// Text says how a screen formats text.
type Text struct {
	Clean  func(string) string // removes characters that must not reach a terminal
	Words  func(time.Duration) string
	Colour bool
}

func newScreen(where string, text Text) *screen {
	return &screen{where: where, text: text, trail: []place{{view: queuesView}}, width: 80, height: 24}
}

func (s *screen) at() *place { return &s.trail[len(s.trail)-1] }

// request is what a key requests from the program.
type request struct {
	quit, load bool
	do         *change
}

// press handles a key, given by its name.
func (s *screen) press(key string) request {
	switch {
	case key == "ctrl+c":
		return request{quit: true}
	case s.ask != nil:
		return s.answer(key)
	case s.typing:
		s.typeIn(key)
		return request{}
	case s.help:
		s.help = false
		return request{quit: key == "q"}
	}
	s.notice = ""
	if len(key) == 1 && key[0] >= '1' && int(key[0]-'1') < len(tabs) {
		return s.open(tabs[key[0]-'1'])
	}
	switch key {
	case "q":
		return request{quit: true}
	case "?":
		s.help = true
	case "/":
		s.typing = true
	case "tab", "shift+tab":
		step := map[string]int{"tab": 1, "shift+tab": len(tabs) - 1}[key]
		return s.open(tabs[(max(slices.Index(tabs, s.trail[0].view), 0)+step)%len(tabs)])
	case "enter":
		return s.enter()
	case "esc", "backspace":
		return s.back()
	case "s":
		return s.nextState()
	case "p":
		s.askPause()
	case "r":
		s.askRetry()
	default:
		s.move(key)
	}
	return request{}
}

// answer handles the answer to a question: y does it, anything else does not.
func (s *screen) answer(key string) request {
	asked := s.ask
	s.ask = nil
	if key == "y" || key == "Y" {
		return request{do: asked}
	}
	s.notice = "not done: " + asked.String()
	return request{}
}

func (s *screen) typeIn(key string) {
	p := s.at()
	switch {
	case key == "enter":
		s.typing = false
	case key == "esc":
		s.typing, p.find = false, ""
	case key == "backspace":
		_, last := utf8.DecodeLastRuneInString(p.find)
		p.find = p.find[:len(p.find)-last]
	case key == "space":
		p.find += " "
	case utf8.RuneCountInString(key) == 1 && len(p.find) < 64:
		p.find += key
	}
}

func (s *screen) open(v view) request {
	s.trail = []place{{view: v}}
	s.loaded = false
	return request{load: true}
}

func (s *screen) push(p place) request {
	s.trail = append(s.trail, p)
	s.loaded = false
	return request{load: true}
}

// back leaves a place, or first its filter.
func (s *screen) back() request {
	if p := s.at(); p.find != "" {
		p.find = ""
		return request{}
	}
	if len(s.trail) == 1 {
		return request{}
	}
	s.trail = s.trail[:len(s.trail)-1]
	s.loaded = false
	return request{load: true}
}

// enter opens the subject of the selected row.
func (s *screen) enter() request {
	row := s.chosen()
	if row == nil || s.at().view == taskView {
		return request{}
	}
	return s.push(row.opens)
}

func (s *screen) nextState() request {
	p := s.at()
	if p.view != tasksView || p.worker != "" {
		return request{}
	}
	p.filter.State = states[(slices.Index(states, p.filter.State)+1)%len(states)]
	s.loaded = false
	return request{load: true}
}

// askPause asks for confirmation before it pauses or resumes a queue.
func (s *screen) askPause() {
	name := s.at().filter.Queue
	if row := s.chosen(); row != nil && s.at().view == queuesView {
		name = row.key
	}
	for _, q := range s.data.Queues {
		if q.Name == name {
			s.ask = &change{"pause", name}
			if q.Paused {
				s.ask.verb = "resume"
			}
			return
		}
	}
	s.notice = "choose a queue first: key 1 lists them"
}

func (s *screen) askRetry() {
	p := s.at()
	if row := s.chosen(); p.view == taskView && s.data.Task != nil {
		s.ask = &change{"retry", s.data.Task.ID}
	} else if row != nil && row.opens.view == taskView {
		s.ask = &change{"retry", row.opens.task}
	} else {
		s.notice = "choose a task first: enter opens a row"
	}
}

// move selects another row.
func (s *screen) move(key string) {
	rows := s.rows()
	if len(rows) == 0 {
		return
	}
	i := s.index(rows)
	switch key {
	case "up", "k":
		i--
	case "down", "j":
		i++
	case "pgup":
		i -= s.room()
	case "pgdown":
		i += s.room()
	case "home", "g":
		i = 0
	case "end", "G":
		i = len(rows) - 1
	default:
		return
	}
	s.at().row = rows[min(max(i, 0), len(rows)-1)].key
}

// chosen returns the row that keys act on, or nil if there is none.
func (s *screen) chosen() *row {
	rows := s.rows()
	if len(rows) == 0 {
		return nil
	}
	return &rows[s.index(rows)]
}

func (s *screen) index(rows []row) int {
	return max(slices.IndexFunc(rows, func(r row) bool { return r.key == s.at().row }), 0)
}

// rows returns the rows of the current place that match the filter.
func (s *screen) rows() []row {
	find := strings.ToLower(s.at().find)
	return slices.DeleteFunc(s.table().rows, func(r row) bool {
		return find != "" && !strings.Contains(strings.ToLower(strings.Join(r.cells, " ")), find)
	})
}
