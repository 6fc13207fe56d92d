/* actors/coordinator/main.c - the program sluice-coordinator. */
#include "actors/coordinator/coordinator.h"
#include "ipc/msg/sl_process.h"

int main(int argc, char **argv)
{
    return sl_process_main(&sl_coordinator_actor, argc, argv);
}
