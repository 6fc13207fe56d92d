/* client/tools/supervise/exit_code.h - the exit code of a process that is no child of ours. */
#ifndef SL_CLIENT_SUPERVISE_EXIT_CODE_H
#define SL_CLIENT_SUPERVISE_EXIT_CODE_H

#include <stdbool.h>

/* Of one that has ended, by a pidfd that was opened before: as a shell has it, 128 and the signal
 * for one that was killed. Waits up to 20 ms until its parent has collected it. False: the kernel
 * (before 6.15) tells parents alone. */
bool sup_exit_code(int pidfd, int *code);

#endif
