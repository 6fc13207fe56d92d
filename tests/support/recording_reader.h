/* tests/support/recording_reader.h - reads the events of a recording, for tests of its writers. */
#ifndef SL_TESTS_SUPPORT_RECORDING_READER_H
#define SL_TESTS_SUPPORT_RECORDING_READER_H

#include "runtime/base/sl_base.h"
#include "runtime/base/sl_recording.h"

#define RECORDING_EVENTS_MAX 20000u

struct recording_seen {
    struct sl_recording_event events[RECORDING_EVENTS_MAX];
    uint32_t count;
    uint64_t torn_bytes;
    struct sl_recording_header head;
};
/* Reads all of it; an error fails the test case. */
void recording_bytes_read(const unsigned char *bytes, uint64_t length_bytes,
                          struct recording_seen *seen);

#endif
