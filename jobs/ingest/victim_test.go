package ingest_test

const envVictim = "RATEBATCH_TEST_INGEST"

func victim() int { return 0 }
