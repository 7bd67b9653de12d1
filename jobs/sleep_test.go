package jobs

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestSleepEndsWithTheReason(t *testing.T) {
	t.Parallel()
	if err := Sleep(t.Context(), time.Millisecond); err != nil {
		t.Errorf("a sleep that nobody disturbs ends with %v", err)
	}
	why := errors.New("the night is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := Sleep(ctx, time.Hour); !errors.Is(err, why) {
		t.Errorf("a sleep that was ended gives %v, want the reason", err)
	}
}
