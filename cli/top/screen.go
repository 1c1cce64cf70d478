package top

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// view is one of the things that the screen can show.
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

// tabs are the views that a digit opens, from 1 on.
var tabs = []view{queuesView, kindsView, workersView, errorsView, runningView}

// states are those that the key s goes through in a list of tasks.
var states = []string{"", "available", "running", "retryable", "scheduled", "pending", "completed", "cancelled",
	"discarded"}

// place is where the screen is: a view, what it is about, and the row that is chosen there.
type place struct {
	view   view
	filter Filter // of tasks
	worker string // whose tasks alone are shown
	task   string
	row    string // key of the chosen row
	find   string // rows without this text are hidden
}

// data is what the source told. Lists are those of the place that the screen is at.
type data struct {
	Overview
	Errors []ErrorGroup
	Tasks  []Task
	Task   *Detail
}

// change is something that a key asks the source to do.
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

// screen is all that a frame is made of.
type screen struct {
	where    string // what is looked at
	now      time.Time
	data     data
	arrivals map[string]float64 // tasks a minute, by queue; absent: not known yet
	loaded   bool               // data is of the present place
	trouble  string             // why the latest look failed
	notice   string             // what became of the latest change
	trail    []place            // the last one is shown
	typing   bool               // keys go to the filter
	ask      *change            // waits for y or n
	help     bool

	width, height int
	text          Text
}

// Text is how a screen writes.
type Text struct {
	Clean  func(string) string // takes away what must not reach a terminal
	Words  func(time.Duration) string
	Colour bool
}

func newScreen(where string, text Text) *screen {
	return &screen{where: where, text: text, trail: []place{{view: queuesView}}, width: 80, height: 24}
}

func (s *screen) at() *place { return &s.trail[len(s.trail)-1] }

// request is what a key asks of the program.
type request struct {
	quit, load bool
	do         *change
}

// press takes a key by its name.
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

// answer takes the answer to a question: y does it, anything else does not.
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

// enter opens what the chosen row is about.
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

// askPause asks before the pause of a queue, or the end of one.
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

// move chooses another row.
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

// chosen is the row that keys act on; nil: there is none.
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

// rows are those of the place that the filter lets through.
func (s *screen) rows() []row {
	find := strings.ToLower(s.at().find)
	return slices.DeleteFunc(s.table().rows, func(r row) bool {
		return find != "" && !strings.Contains(strings.ToLower(strings.Join(r.cells, " ")), find)
	})
}
