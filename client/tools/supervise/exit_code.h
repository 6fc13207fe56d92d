/* client/tools/supervise/exit_code.h - the exit code of a process that is not our child. */
#ifndef SL_CLIENT_SUPERVISE_EXIT_CODE_H
#define SL_CLIENT_SUPERVISE_EXIT_CODE_H

#include <stdbool.h>

/* Gives the exit code of an ended process as in a shell: 128 + the signal if it was killed. The
 * pidfd was opened while it lived. Waits up to 20 ms until its parent has collected it. False: the
 * kernel (before 6.15) reports it only to the parent. */
bool sup_exit_code(int pidfd, int *code);

#endif
