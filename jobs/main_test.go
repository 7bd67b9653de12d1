package jobs

import (
	"testing"

	"github.com/ratebatch/ratebatch/ratebatch/engine/enginetest"
)

func TestMain(m *testing.M) { enginetest.Main(m) }
