"""Small programs at random, each judged by every judge there is: where two contradict each other, one is wrong."""
