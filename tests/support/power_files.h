/* tests/support/power_files.h - what a power cut may leave of the files in one directory.
 *
 * The calls of the code under test are led here by the linker (--wrap: open, write, fsync, close,
 * rename, link, unlink), go on to the system, and are noted. A file keeps what was synced; what was
 * written since is there or not. Names are as at some moment between the last sync of the directory
 * and the cut, as with a journal. What fails with an error is not noted. */
#ifndef SL_TEST_POWER_FILES_H
#define SL_TEST_POWER_FILES_H

#include <stdbool.h>
#include <stdint.h>

/* From now on calls in this directory, which is empty, are noted. */
void power_files_watch(const char *directory);
uint32_t power_files_calls(void); /* that were noted so far */
/* Makes each state that a cut may leave, after the first call, the second, and so on, in the
 * directory `into` (emptied for each), and calls `each` with the number of calls before the cut.
 * Gives how many there were. */
uint32_t power_files_cut(const char *into, void (*each)(void *context, uint32_t calls),
                         void *context);

#endif
