"""What is inside a compiled kernel: its instructions by kind, its loops, what it takes of the device, and how two differ.

`instructions` is the one idea; `ptx`, `sass` and `x86` read a language into it by tables; `loops` finds the loop that matters;
`report` puts together what is told of one kernel; `comparison` sets kernels side by side.
"""
