/* actors/keyer/main.c - the program sluice-keyer. */
#include "actors/keyer/keyer.h"
#include "ipc/msg/sl_process.h"

int main(int argc, char **argv)
{
    return sl_process_main(&sl_keyer_actor, argc, argv);
}
