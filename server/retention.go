package server

import (
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tuskqueue/tusk"
	"github.com/tuskqueue/tusk/internal/duration"
)

// Retention is how long a queue keeps its finished tasks.
type Retention struct {
	Completed Keeping `json:"completed,omitempty" doc:"completed tasks; absent: the default retention"`
	Cancelled Keeping `json:"cancelled,omitempty" doc:"cancelled tasks; absent: the default retention"`
	Discarded Keeping `json:"discarded,omitempty" doc:"discarded tasks; absent: the default retention"`
}

// TransformSchema implements huma.SchemaTransformer.
func (Retention) TransformSchema(_ huma.Registry, s *huma.Schema) *huma.Schema {
	fields(1, 0)(s)
	return s
}

// Keeping is a duration as text, or forever. A missing value means the default.
type Keeping time.Duration

const forever = "forever"

// MarshalText implements encoding.TextMarshaler.
func (k Keeping) MarshalText() ([]byte, error) {
	if time.Duration(k) == tusk.Forever {
		return []byte(forever), nil
	}
	return Duration(k).MarshalText()
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Keeping) UnmarshalText(text []byte) error {
	if string(text) == forever {
		*k = Keeping(tusk.Forever)
		return nil
	}
	d, err := duration.ParseKept(string(text))
	if err != nil {
		return problem(422, "invalid_duration", "%q: %v, or forever", short(string(text)), err)
	}
	*k = Keeping(d)
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *Keeping) UnmarshalJSON(text []byte) error {
	return durationFrom(text, k.UnmarshalText, (*Duration)(k))
}

// Schema implements huma.SchemaProvider.
func (Keeping) Schema(huma.Registry) *huma.Schema {
	s := durationSchema(duration.Form + ", above 0, or forever")
	numbers(1, maxSeconds)(s.AnyOf[1])
	s.AnyOf = append(s.AnyOf, &huma.Schema{Type: huma.TypeString, Enum: []any{forever}})
	return s
}

func viewRetention(r tusk.QueueRetention) *Retention {
	if r == (tusk.QueueRetention{}) {
		return nil
	}
	return &Retention{Keeping(r.Completed), Keeping(r.Cancelled), Keeping(r.Discarded)}
}

type keepQueueInput struct {
	meantQueue
	Body Retention
}

func keepQueue(c *call, in keepQueueInput) (Queue, error) {
	if err := c.maySet(in.meantQueue); err != nil {
		return Queue{}, err
	}
	return c.setRetention(in.Queue, tusk.QueueRetention{Completed: time.Duration(in.Body.Completed),
		Cancelled: time.Duration(in.Body.Cancelled), Discarded: time.Duration(in.Body.Discarded)})
}

func keepLikeOthers(c *call, in byQueue) (Queue, error) {
	return c.setRetention(in.Queue, tusk.QueueRetention{})
}

func (c *call) setRetention(queue string, r tusk.QueueRetention) (Queue, error) {
	if err := c.mayChangeAll(queue); err != nil {
		return Queue{}, err
	}
	if err := c.client.SetRetention(c.r.Context(), queue, r); err != nil {
		return Queue{}, err
	}
	return getQueue(c, byQueue{queue})
}
