/* actors/tierer/main.c - the program sluice-tierer. */
#include "actors/tierer/tierer.h"
#include "ipc/msg/sl_process.h"

int main(int argc, char **argv)
{
    return sl_process_main(&sl_tierer_actor, argc, argv);
}
